package undecided

import "C"

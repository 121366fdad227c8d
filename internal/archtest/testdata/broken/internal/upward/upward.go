package upward

import _ "example.test/broken/services/router"

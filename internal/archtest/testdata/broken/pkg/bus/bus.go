package bus

import _ "example.test/broken/pkg/tool"

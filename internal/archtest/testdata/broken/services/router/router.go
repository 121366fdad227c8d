package router

import _ "example.test/broken/services/router/inner"

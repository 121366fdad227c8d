package provider

import _ "example.test/broken/pkg/bus"

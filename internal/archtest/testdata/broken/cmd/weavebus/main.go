package main

import (
	_ "example.test/broken/internal/bustest"
	_ "example.test/undecided"
)

func main() {}

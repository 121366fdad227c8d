module example.test/nested

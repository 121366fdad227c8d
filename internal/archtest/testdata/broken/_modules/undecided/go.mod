module example.test/undecided

package long

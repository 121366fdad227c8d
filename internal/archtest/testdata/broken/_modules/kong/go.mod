module github.com/alecthomas/kong

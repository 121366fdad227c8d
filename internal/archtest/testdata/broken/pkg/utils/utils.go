package utils

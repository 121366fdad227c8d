// Command vuln-control calls a function with a known vulnerability
// (GO-2021-0113), to show that the vulnerability check would find it.
package main

import "golang.org/x/text/language"

func main() {
	if _, _, err := language.ParseAcceptLanguage("en"); err != nil {
		panic(err)
	}
}

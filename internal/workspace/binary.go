package workspace

import "bytes"

// magics are beginnings of files that are no text although they may begin so.
var magics = []struct{ begin, kind string }{
	{"\x89PNG\r\n\x1a\n", "image/png"},
	{"\xff\xd8\xff", "image/jpeg"},
	{"GIF87a", "image/gif"},
	{"GIF89a", "image/gif"},
	{"%PDF-", "application/pdf"},
	{"PK\x03\x04", "application/zip"},
	{"\x1f\x8b", "application/gzip"},
	{"\x7fELF", "program"},
	{"\xff\xfe", "text in UTF-16"},
	{"\xfe\xff", "text in UTF-16"},
}

// binaryKind names what the file is when its beginning is not text; "" for text.
func (s *source) binaryKind() string {
	head, _ := s.br.Peek(sniffed)
	for _, m := range magics {
		if bytes.HasPrefix(head, []byte(m.begin)) {
			return m.kind
		}
	}
	switch even, odd := zeros(head); {
	case even+odd == 0:
		return ""
	case (even == 0 || odd == 0) && (even+odd)*3 > len(head):
		return "text in UTF-16"
	}
	return "binary data"
}

// zeros counts the zero bytes at even and at odd places.
func zeros(b []byte) (even, odd int) {
	for i, c := range b {
		if c == 0 && i%2 == 0 {
			even++
		} else if c == 0 {
			odd++
		}
	}
	return even, odd
}

// mostlyBinary says that a text with so many bytes that are not UTF-8, or with
// zero bytes, should not be shown as text.
func mostlyBinary(text []byte, invalid int64) bool {
	return invalid*8 > int64(len(text)) && invalid > 4 || bytes.IndexByte(text, 0) >= 0
}

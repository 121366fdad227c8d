package jsontext

// Members calls visit for each member of the object text, in order, until visit
// gives an error, which it returns. The text has passed [Check]; one that is no
// object has no members. Key and value are parts of text, white space cut off;
// the key is a string literal with its quotes ([Unquote]).
func Members(text []byte, visit func(key, value []byte) error) error {
	w := walker{text: text}
	if !w.enter('{') {
		return nil
	}
	for w.more('}') {
		key := w.take()
		w.skip(':')
		if err := visit(key, w.take()); err != nil {
			return err
		}
		w.skip(',')
	}
	return nil
}

// Items is [Members] for the items of an array.
func Items(text []byte, visit func(value []byte) error) error {
	w := walker{text: text}
	if !w.enter('[') {
		return nil
	}
	for w.more(']') {
		if err := visit(w.take()); err != nil {
			return err
		}
		w.skip(',')
	}
	return nil
}

// walker steps through text known to be sound JSON; on other text it still
// ends, with parts that mean nothing.
type walker struct {
	text []byte
	at   int
}

func (w *walker) space() {
	for w.at < len(w.text) && w.text[w.at] <= ' ' {
		w.at++
	}
}

func (w *walker) enter(opener byte) bool {
	w.space()
	if w.at == len(w.text) || w.text[w.at] != opener {
		return false
	}
	w.at++
	return true
}

func (w *walker) more(closer byte) bool {
	w.space()
	return w.at < len(w.text) && w.text[w.at] != closer
}

func (w *walker) skip(c byte) {
	w.space()
	if w.at < len(w.text) && w.text[w.at] == c {
		w.at++
	}
	w.space()
}

// take gives the value at w.at and steps over it, by at least one byte.
func (w *walker) take() []byte {
	start, depth := w.at, 0
	for w.at < len(w.text) {
		switch c := w.text[w.at]; c {
		case '"':
			w.str()
		case '{', '[':
			depth++
			w.at++
			continue
		case '}', ']':
			depth--
			w.at++
		case ' ', '\t', '\n', '\r', ',', ':':
			w.at++
			continue
		default:
			w.scalar()
		}
		if depth <= 0 {
			break
		}
	}
	return w.text[start:w.at]
}

func (w *walker) str() {
	for w.at++; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case '\\':
			w.at++
		case '"':
			w.at++
			return
		}
	}
	w.at = len(w.text)
}

func (w *walker) scalar() {
	for w.at++; w.at < len(w.text); w.at++ {
		switch w.text[w.at] {
		case ' ', '\t', '\n', '\r', ',', ':', '}', ']', '"', '{', '[':
			return
		}
	}
}

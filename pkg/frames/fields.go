package frames

import "slices"

// Field is a key of a map with its value.
type Field struct {
	Key   string
	Value Raw
}

// Fields is a map in the order of the wire.
type Fields []Field

// Get gives the value of a key; nil where there is none.
func (fs Fields) Get(key string) Raw {
	for i := range fs {
		if fs[i].Key == key {
			return fs[i].Value
		}
	}
	return nil
}

// Text gives a str value; "" where there is none.
func (fs Fields) Text(key string) string {
	s, _ := fs.Get(key).Text()
	return s
}

// Bool gives a bool value; false where there is none.
func (fs Fields) Bool(key string) bool {
	b, _ := fs.Get(key).Bool()
	return b
}

// Int gives a whole number; 0 where there is none.
func (fs Fields) Int(key string) int64 {
	n, _ := fs.Get(key).Int64()
	return n
}

// Set puts a key's value in place of an earlier one, or at the end. The slice's
// memory is not shared with another Fields that was made by Clone.
func (fs *Fields) Set(key string, value Raw) {
	for i := range *fs {
		if (*fs)[i].Key == key {
			(*fs)[i].Value = value
			return
		}
	}
	*fs = append(*fs, Field{key, value})
}

// Delete takes a key away.
func (fs *Fields) Delete(key string) {
	*fs = slices.DeleteFunc(*fs, func(f Field) bool { return f.Key == key })
}

// Clone gives a copy that may be changed.
func (fs Fields) Clone() Fields { return slices.Clone(fs) }

// Raw gives the map as one value.
func (fs Fields) Raw() Raw { return fs.append(make([]byte, 0, 3+fs.size())) }

func (fs Fields) append(b []byte) []byte {
	b = appendMapHeader(b, len(fs))
	for i := range fs {
		b = appendRaw(appendString(b, fs[i].Key), fs[i].Value)
	}
	return b
}

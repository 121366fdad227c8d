package tool

import "example.test/broken/internal/secret"

type (
	Alias   = secret.Type
	Generic[T secret.Constraint] struct{ hidden secret.Type }
	Shown   struct{ Field map[string][]*secret.Type }
	Fine    struct{ hidden secret.Type }
	iface   interface{ method(secret.Type) }
)

var Channel chan secret.Type

func (Fine) Method() secret.Type                { return secret.Type{} }
func (Fine) hiddenMethod(secret.Type)           {}
func Func(func(secret.Type)) (_ []string)       { return nil }
func fine(secret.Type)                          {}
func Kept(Fine, interface{ Len() int }, error)  {}
func Method(interface{ Secret() secret.Type })  {}

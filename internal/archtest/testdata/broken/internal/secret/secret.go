package secret

type (
	Type       struct{}
	Constraint interface{ ~int }
)

package schema

import (
	"fmt"
	"math/big"
	"reflect"
	"strconv"
	"strings"
)

func isNumber(raw []byte) bool { return raw[0] == '-' || '0' <= raw[0] && raw[0] <= '9' }

// whole gives a number that is an integer, however it is written.
func (d *decoding) whole(raw []byte) (*big.Int, error) {
	if !isNumber(raw) {
		return nil, d.wrongType(raw, "integer")
	}
	if n, ok := new(big.Int).SetString(string(raw), 10); ok {
		return n, nil
	}
	if r, ok := new(big.Rat).SetString(string(raw)); ok && r.IsInt() {
		return r.Num(), nil
	}
	return nil, d.misfit(raw, "not a whole number", "integer")
}

func (d *decoding) integer(raw []byte, v reflect.Value) error {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && v.CanInt() && !v.OverflowInt(n) {
		v.SetInt(n)
		return nil
	}
	n, err := d.whole(raw)
	if err != nil {
		return err
	}
	switch {
	case v.CanInt() && n.IsInt64() && !v.OverflowInt(n.Int64()):
		v.SetInt(n.Int64())
	case v.CanUint() && n.IsUint64() && !v.OverflowUint(n.Uint64()):
		v.SetUint(n.Uint64())
	default:
		return d.misfit(raw, "number out of range", "integer "+rangeOf(v.Type()))
	}
	return nil
}

// rangeOf words what an integer type holds.
func rangeOf(t reflect.Type) string {
	low, high := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(t.Bits()))
	if t.Kind() <= reflect.Int64 {
		high.Rsh(high, 1)
		low.Neg(high)
	}
	return fmt.Sprintf("from %v to %v", low, high.Sub(high, big.NewInt(1)))
}

func (d *decoding) float(raw []byte, v reflect.Value) error {
	if !isNumber(raw) {
		return d.wrongType(raw, "number")
	}
	f, err := strconv.ParseFloat(string(raw), v.Type().Bits())
	if err != nil {
		return d.misfit(raw, "number out of range", "number that fits "+strings.ToLower(v.Kind().String()))
	}
	v.SetFloat(f)
	return nil
}

package schema

import "strings"

// maxCompared is the longest name, in bytes, that nearest looks at.
const maxCompared = 64

// nearest gives the name that was probably meant by got: the same but for case
// and separators, or with few letters changed; "" if there is none.
func nearest(got string, names []string) string {
	if len(got) > maxCompared {
		return ""
	}
	best, bestDistance := "", (len(got)+2)/4+1
	for _, name := range names {
		if len(name) > maxCompared {
			continue
		}
		d := 0
		if bare(got) != bare(name) {
			d = distance(strings.ToLower(got), strings.ToLower(name))
		}
		if d < bestDistance {
			best, bestDistance = name, d
		}
	}
	return best
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "", ".", "")

func bare(s string) string { return strings.ToLower(separators.Replace(s)) }

// distance counts the bytes to add, drop, change or swap with their neighbour
// to make b of a.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, row[j-1]+1, last[j]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

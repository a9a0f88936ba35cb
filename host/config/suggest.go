package config

import (
	"fmt"
	"slices"
	"strings"
)

// Suggest names the known key that was probably meant, or else all of them.
func Suggest(key string, known []string) string {
	if len(known) == 0 {
		return "; none is known here"
	}
	best := slices.MinFunc(known, func(a, b string) int { return distance(key, a) - distance(key, b) })
	if distance(key, best) <= max(1, len(best)/2) {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	sorted := slices.Sorted(slices.Values(known))
	return "; known are " + strings.Join(sorted, ", ")
}

// distance is the number of letters to insert, drop or replace between a and b, whatever their case.
func distance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

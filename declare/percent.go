package declare

import (
	"math"
	"strconv"
	"strings"
)

// Parse returns the number, and whether it is one of percent; false where the text is neither a whole number from 0 nor a percentage.
func (p IntOrPercent) Parse() (n int, percent, ok bool) {
	digits, percent := strings.CutSuffix(string(p), "%")
	v, err := strconv.ParseUint(digits, 10, 31)
	return int(v), percent, err == nil
}

// Up returns how many of a whole are meant, where a part of one counts as one; 0 for a text that is neither number nor percentage.
func (p IntOrPercent) Up(whole int) int { return p.of(whole, 99) }

// Down returns how many of a whole are meant, where a part of one counts as none; 0 for a text that is neither number nor percentage.
func (p IntOrPercent) Down(whole int) int { return p.of(whole, 0) }

func (p IntOrPercent) of(whole int, more int64) int {
	n, percent, ok := p.Parse()
	switch {
	case !ok || whole < 0:
		return 0
	case !percent:
		return n
	}
	return int(min((int64(n)*min(int64(whole), math.MaxInt32)+more)/100, math.MaxInt32))
}

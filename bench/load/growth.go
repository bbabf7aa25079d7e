package load

import "math"

// Point is one measurement of something that grows with a number.
type Point struct{ N, Value float64 }

// Slope is the exponent k of the line value = c * n^k that fits points best: 0 is what does not depend on the number, 1 what each of
// them costs the same.
func Slope(points []Point) float64 {
	var x, y, xx, xy float64
	for _, p := range points {
		lx, ly := math.Log(p.N), math.Log(p.Value)
		x, y, xx, xy = x+lx, y+ly, xx+lx*lx, xy+lx*ly
	}
	n := float64(len(points))
	return (n*xy - x*y) / (n*xx - x*x)
}

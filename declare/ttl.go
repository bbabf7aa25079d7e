package declare

import (
	"fmt"
	"time"
)

// The bounds of a TTL.
const (
	// TTLMin is two hours: a host counts from when its newest head was issued, and servers sign anew each hour. What is shorter would
	// be over between two heads of servers that are well.
	TTLMin = 2 * time.Hour
	// TTLMax is a year: what may last longer than that need not end.
	TTLMax = 365 * 24 * time.Hour
)

// TimeToLive is how long the resource is kept without a sign of life from the servers; 0 is for ever.
func (r *Resource) TimeToLive() time.Duration {
	if r.TTL == "" {
		return 0
	}
	d, err := time.ParseDuration(r.TTL)
	if err != nil {
		return 0 // validation has refused it
	}
	return max(d, 0)
}

// TTLMistake returns what is wrong with a TTL, or "". The empty text is right.
func TTLMistake(text string) (message, hint string) {
	if text == "" {
		return "", ""
	}
	const how = `write for example "6h", "150m" or "168h"`
	switch d, err := time.ParseDuration(text); {
	case err != nil:
		return fmt.Sprintf("%q is not a time", clipText(text)), how
	case d%time.Minute != 0:
		return fmt.Sprintf("%q is not a number of whole minutes", clipText(text)), how
	case d < TTLMin:
		return fmt.Sprintf("%q is shorter than 2h", clipText(text)), "servers sign anew each hour; what is over between two signatures would come and go"
	case d > TTLMax:
		return fmt.Sprintf("%q is longer than 8760h, which is a year", clipText(text)), "leave ttl out for what need not end"
	}
	return "", ""
}

package upgrade

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// plannedMax is how many lines of a plan are named; the others count.
const plannedMax = 200

// Plan is what a program says that it would do: one line for each resource.
type Plan struct {
	Count   int      `json:"count"`
	Sum     string   `json:"sum"`     // of all lines
	Planned []string `json:"planned"` // the first of those that say that something would be done
}

// Summary makes a Plan of lines, and of which of them something would be done.
func Summary(lines []string, planned []bool) Plan {
	sum := sha256.New()
	p := Plan{Count: len(lines)}
	for i, line := range lines {
		fmt.Fprintf(sum, "%d %s\n", len(line), line)
		if planned[i] && len(p.Planned) < plannedMax {
			p.Planned = append(p.Planned, line)
		}
	}
	p.Sum = hex.EncodeToString(sum.Sum(nil))
	return p
}

// parsePlan reads what a program has printed last.
func parsePlan(out []byte) (p Plan, err error) {
	out = bytes.TrimSpace(out)
	if err = json.Unmarshal(out[bytes.LastIndexByte(out, '\n')+1:], &p); err == nil && len(p.Sum) != hex.EncodedLen(sha256.Size) {
		err = errors.New("what it has printed is no plan")
	}
	return p, err
}

// Compare says how the plan of a new program differs from that of the one before.
func Compare(was, is Plan) error {
	switch {
	case was.Count != is.Count:
		return fmt.Errorf("it sees %d resources where there are %d", is.Count, was.Count)
	case was.Sum == is.Sum:
		return nil
	}
	for _, one := range []struct {
		in, other []string
		what      string
	}{{is.Planned, was.Planned, "it would do what the present one would not"}, {was.Planned, is.Planned, "it would not do what the present one would"}} {
		known := map[string]bool{}
		for _, line := range one.other {
			known[line] = true
		}
		for _, line := range one.in {
			if !known[line] {
				return errors.New(one.what + ": " + line)
			}
		}
	}
	return errors.New("it plans something else than the present one")
}

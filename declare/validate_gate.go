package declare

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"tako.dev/tako/internal/reason"
)

const (
	// gatesMax is how many gates a rollout has at most: ours, more than anybody looks at while something is rolled out.
	gatesMax = 8
	// queryBytesMax bounds a query: ours, several times the longest that people write.
	queryBytesMax = 4096
	// MeasureMax is the largest measure in thousandths: above it a float64 cannot tell one number from the next.
	MeasureMax = 1 << 53
)

// CheckKey looks at which value of a Secret or ConfigMap is meant at a path. nil is one that was left out. Where it may be follows from who asks.
type CheckKey func(path string, key *KeySelector) []Fault

// CheckQuery looks at a question to a Prometheus.
func CheckQuery(path string, q *PrometheusQuery, key CheckKey) []Fault {
	var v validator
	v.query(path, q, key)
	return v.faults
}

// CheckGates looks at the gates of a rollout.
func CheckGates(path string, gates []Gate, key CheckKey) []Fault {
	var v validator
	if !v.atMost(path, len(gates), gatesMax, "gates", "") {
		return v.faults
	}
	seen := map[string]string{}
	for i := range gates {
		v.gate(indexPath(path, i), &gates[i], seen, key)
	}
	return v.faults
}

func (v *validator) gate(at string, g *Gate, seen map[string]string, key CheckKey) {
	switch {
	case g.Name == "":
		v.missing(at, "name", "")
	case !isDomainLabel(g.Name):
		v.invalid(at+".name", fmt.Sprintf("%q is not a name", clipText(g.Name)), "up to 63 of a-z, 0-9 and -, with a letter or digit first and last")
	case seen[g.Name] != "":
		f := v.fault(at+".name", reason.DuplicateName, fmt.Sprintf("the name %q is there already", clipText(g.Name)), "choose another one, or remove one of them")
		f.Related = []Place{{Path: seen[g.Name], Note: "first given here"}}
	default:
		seen[g.Name] = at + ".name"
	}
	v.query(at+".prometheus", &g.Prometheus, key)
	const example = `write for example "0.05" or "250"`
	least, most := v.measure(at+".min", g.Min, example), v.measure(at+".max", g.Max, example)
	switch {
	case g.Min == nil && g.Max == nil:
		v.missing(at, "max", "say what is good: "+example+", or a min")
	case g.Min != nil && g.Max != nil && least > most:
		v.invalid(at+".max", fmt.Sprintf("max is %s, and min is %s", *g.Max, *g.Min), "min is at most max")
	}
}

// measure checks a bound that may be left out, and returns it in thousandths.
func (v *validator) measure(path string, q *Quantity, example string) int64 {
	if q == nil {
		return 0
	}
	n, err := q.Milli()
	switch {
	case *q == "":
		v.invalid(path, "it is empty", example)
	case err != nil:
		v.invalid(path, err.Error(), example)
	case n < 0 || strings.HasPrefix(string(*q), "-"):
		v.invalid(path, fmt.Sprintf("%q is negative", clipText(string(*q))), example)
	case n > MeasureMax:
		v.invalid(path, fmt.Sprintf("%q is more than can be measured", clipText(string(*q))), example)
	}
	return n
}

func (v *validator) query(at string, q *PrometheusQuery, key CheckKey) {
	v.access(at, q, key)
	if q.Server != "" && !isDomainLabel(q.Server) {
		v.invalid(at+".server", fmt.Sprintf("%q is not a name", clipText(q.Server)), "write the NAME that tako's server was started with: --prometheus NAME=URL")
	}
	switch {
	case q.Query == "":
		v.missing(at, "query", "")
	case len(q.Query) > queryBytesMax || !utf8.ValidString(q.Query):
		v.invalid(at+".query", fmt.Sprintf("it is no text of at most %d bytes", queryBytesMax), "")
	}
}

// access checks what a Prometheus is asked with, and known by.
func (v *validator) access(at string, q *PrometheusQuery, key CheckKey) {
	take := func(path string, k *KeySelector) { v.faults = append(v.faults, key(path, k)...) }
	if a := q.Auth; a != nil {
		at := at + ".auth"
		take(at+".token", a.Token)
		take(at+".username", a.Username)
		take(at+".password", a.Password)
		switch {
		case a.Token != nil && (a.Username != nil || a.Password != nil):
			v.fault(at+".token", reason.FieldNotAllowed, "there are a username or a password as well", "keep the token, or username and password")
		case a.Token == nil && a.Username == nil && a.Password == nil:
			v.missing(at, "token", "write for example token: {name: prometheus, key: token}, or username and password")
		case a.Token == nil && a.Username == nil:
			v.missing(at, "username", "it goes with the password")
		case a.Token == nil && a.Password == nil:
			v.missing(at, "password", "it goes with the username")
		}
	}
	if c := q.CA; c != nil {
		switch {
		case c.Secret == nil && c.ConfigMap == nil:
			v.fault(at+".ca", reason.MissingField, at+".ca does not say where the authorities are", "write one of: secret, configMap")
		case c.Secret != nil && c.ConfigMap != nil:
			v.fault(at+".ca", reason.FieldNotAllowed, at+".ca says secret and configMap", "keep one of them")
		}
		take(at+".ca.secret", c.Secret)
		take(at+".ca.configMap", c.ConfigMap)
	}
}

func (v *validator) missing(path, field, hint string) {
	v.fault(path+"."+field, reason.MissingField, fmt.Sprintf("%s has no %q", path, field), hint)
}

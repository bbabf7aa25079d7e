package answer

import (
	"encoding/json"
	"io"
	"time"

	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/relations"
)

// Happening is one line of a host's history, as its agent keeps it.
type Happening struct {
	At      time.Time `json:"at"`
	Claim   string    `json:"claim"`
	Title   string    `json:"title"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`
	Code    string    `json:"code"`
	Message string    `json:"message"`
	Writer  string    `json:"writer"`
	Cause   string    `json:"cause"`
	Took    int64     `json:"tookMicroseconds"`
	Changes []string  `json:"changes"`
}

// History reads happenings, one JSON object after the other, and returns them as lines for a person, with the time of the last.
func History(r io.Reader, style present.Style) (lines []string, last time.Time, err error) {
	for decoder := json.NewDecoder(r); decoder.More(); {
		var h Happening
		if err := decoder.Decode(&h); err != nil {
			return nil, time.Time{}, err
		}
		lines, last = append(lines, h.Line(style)+"\n"), h.At
	}
	return lines, last, nil
}

// Graph is the order of a host's resources: for Graphviz where the form is dot, as the host has told it where it is json, else as a tree
// for a person.
func Graph(said []byte, form string, style present.Style) (string, error) {
	var g relations.Graph
	err := json.Unmarshal(said, &g)
	switch {
	case err != nil:
		return "", err
	case form == "json":
		return string(said), nil
	case form == "dot":
		return g.Dot(), nil
	}
	return g.Tree(style), nil
}

// Line is the happening on one line, for a person.
func (h *Happening) Line(style present.Style) string {
	shown := present.Happening{
		At: h.At, Title: h.Title, Outcome: h.Outcome, Detail: h.Detail, Changes: h.Changes, Message: h.Message, Writer: h.Writer, Cause: h.Cause,
		Took: time.Duration(h.Took) * time.Microsecond,
	}
	return shown.Line(timeForm, style)
}

package describe

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Happening is an Event as it is shown.
type Happening struct {
	Namespace string
	Last      time.Time
	Kind      string // Normal or Warning
	Reason    string
	Subject   string // KIND/NAME
	Message   string
	Count     int64
	UID       string // of the object that it is about; empty where that is not said
}

// IsAbout reports whether it is about the object of a uid, and not about an earlier one of the same name.
func (h Happening) IsAbout(uid string) bool { return uid == "" || h.UID == "" || h.UID == uid }

// HappeningOf reads an Event. Which of its times is set depends on who wrote it.
func HappeningOf(o *unstructured.Unstructured) Happening {
	word := func(path ...string) string {
		s, _, _ := unstructured.NestedString(o.Object, path...)
		return s
	}
	number := func(path ...string) int64 {
		n, _, _ := unstructured.NestedInt64(o.Object, path...)
		return n
	}
	h := Happening{Namespace: o.GetNamespace(), Kind: word("type"), Reason: word("reason"), Message: word("message"), UID: word("involvedObject", "uid"),
		Subject: strings.ToLower(word("involvedObject", "kind")) + "/" + word("involvedObject", "name"),
		Count:   max(number("count"), number("series", "count"), 1), Last: o.GetCreationTimestamp().Time}
	for _, path := range [][]string{{"series", "lastObservedTime"}, {"lastTimestamp"}, {"eventTime"}} {
		if t, err := time.Parse(time.RFC3339, word(path...)); err == nil {
			h.Last = t
			break
		}
	}
	return h
}

// SortHappenings puts the oldest first.
func SortHappenings(list []Happening) {
	slices.SortStableFunc(list, func(a, b Happening) int {
		return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Subject, b.Subject))
	})
}

// Package exposed says which values of a Secret somebody has had who is no host of theirs any more: a node that was deleted, that was
// moved to another environment, or in whose place another host is. A value is exposed until it is changed. The list stands in an
// annotation of the Secret, which only the server writes; it names keys and hosts, and nothing secret. It is bounded: of very many the
// oldest are merged, so that their hosts are counted and no longer named, but no key of which a value is exposed is ever left out.
// Everything here is pure.
package exposed

import (
	"encoding/json"
	"slices"
	"time"
)

// Annotation is the annotation of a Secret that holds the list.
const Annotation = "tako.dev/exposed"

const (
	// entriesMax is how many exposures are told apart: more than anybody reads.
	entriesMax = 16
	// bytesMax bounds the list as it is stored: an eighth of what the annotations of an object may have together (256 KiB).
	bytesMax = 32 << 10
)

// Exposure is one host that has had values of a Secret.
type Exposure struct {
	Node string    `json:"node"`
	UID  string    `json:"uid"`
	Why  string    `json:"why"` // the rest of a sentence about the host: was deleted
	At   time.Time `json:"at"`  // in seconds
	// Keys are those of the Secret whose values the host could read, sorted. None stands for all: there are too many to list them.
	Keys []string `json:"keys,omitempty"`
	// More is how many exposures were merged into this one, which is the newest of them.
	More int `json:"more,omitempty"`
}

// Read reads the list of a Secret's annotation, the oldest first. What is none, which only somebody with the keys of the store can have
// written, is an exposure of everything.
func Read(annotation string) []Exposure {
	if annotation == "" {
		return nil
	}
	var list []Exposure
	if err := json.Unmarshal([]byte(annotation), &list); err != nil {
		return []Exposure{{Why: "is not known: the annotation " + Annotation + " cannot be read"}}
	}
	return list
}

// Write writes a list for the annotation; empty when nothing is exposed.
func Write(list []Exposure) string {
	if len(list) == 0 {
		return ""
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // it is texts, numbers, and times of this era
	}
	return string(text)
}

// Add adds an exposure to a list, which it does not change. One of the same host for the same reason grows, and keeps its time: what
// is noted twice is there once.
func Add(list []Exposure, e Exposure) []Exposure {
	list = slices.Clone(list)
	slices.Sort(e.Keys)
	e.At = e.At.UTC().Truncate(time.Second)
	same := slices.IndexFunc(list, func(x Exposure) bool { return x.UID == e.UID && x.Why == e.Why && x.More == 0 })
	if same >= 0 {
		list[same].Keys = union(list[same].Keys, e.Keys)
	} else {
		list = append(list, e)
	}
	for len(list) > 1 && (len(list) > entriesMax || len(Write(list)) > bytesMax) {
		oldest, next := list[0], list[1]
		next.Keys, next.More = union(oldest.Keys, next.Keys), oldest.More+next.More+1
		list = append([]Exposure{next}, list[2:]...)
	}
	if len(Write(list)) > bytesMax {
		list[0].Keys = nil
	}
	return list
}

// union is all keys of two; none stands for all.
func union(a, b []string) []string {
	if len(a) == 0 || len(b) == 0 {
		return nil
	}
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// Changed takes away what is not exposed any more, because the values of some keys have changed or gone; all says that no value is
// what it was. It does not change the list.
func Changed(list []Exposure, changed func(key string) bool, all bool) []Exposure {
	var left []Exposure
	for _, e := range list {
		if len(e.Keys) == 0 {
			if !all {
				left = append(left, e)
			}
			continue
		}
		e.Keys = slices.DeleteFunc(slices.Clone(e.Keys), changed)
		if len(e.Keys) > 0 {
			left = append(left, e)
		}
	}
	return left
}

// Keys are the keys whose values are exposed, sorted; nil with some being true: all that the Secret has.
func Keys(list []Exposure) (keys []string, some bool) {
	for i, e := range list {
		if i == 0 {
			keys = slices.Clone(e.Keys)
		} else {
			keys = union(keys, e.Keys)
		}
	}
	return keys, len(list) > 0
}

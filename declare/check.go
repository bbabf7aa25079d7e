package declare

// What declarations of other packages have in common with those of this one is checked here, in the same words. Each function returns
// every mistake that it finds, with its path below the one given.

// CheckLabels looks at labels that something has.
func CheckLabels(path string, labels map[string]string) []Fault {
	var v validator
	v.labels(path, labels)
	return v.faults
}

// CheckLabelKey looks at the key of a label, or of a taint.
func CheckLabelKey(path, key string) []Fault {
	var v validator
	if message := labelKeyMistake(key); message != "" {
		v.invalid(path, message, labelKeyRule)
	}
	return v.faults
}

// CheckLabelValue looks at the value of a label, or of a taint.
func CheckLabelValue(path, value string) []Fault {
	var v validator
	v.labelValue(path, value)
	return v.faults
}

// CheckSelector looks at what picks things by their labels.
func CheckSelector(path string, s *Selector) []Fault {
	var v validator
	v.selector(path, s)
	return v.faults
}

// CheckWindow looks at a window.
func CheckWindow(path string, w *Window) []Fault {
	var v validator
	v.window(path, w)
	return v.faults
}

// CheckObject looks at a reference to bytes that are stored on the servers.
func CheckObject(path string, o *ObjectReference) []Fault {
	var v validator
	v.object(path, o)
	return v.faults
}

// CheckWord looks at a word of a closed set; empty is one that was left out. what names the set.
func CheckWord[W ~string](path, what string, got W, words ...W) []Fault {
	var v validator
	texts := make([]string, len(words))
	for i, w := range words {
		if got == w || got == "" {
			return nil
		}
		texts[i] = string(w)
	}
	v.unknownWord(path, what, string(got), texts)
	return v.faults
}

// CheckPath looks at an absolute path of a file or directory in its shortest form, which is not /.
func CheckPath(path, file string) []Fault {
	var v validator
	if message, hint := pathMistake(file); message != "" {
		v.invalid(path, message, hint)
	}
	return v.faults
}

// IsDomainLabel reports whether a text is a label of RFC 1123 in small letters, as namespaces have it: up to 63 of a-z, 0-9 and -, with a
// letter or digit first and last.
func IsDomainLabel(s string) bool { return isDomainLabel(s) }

// IsSubdomain reports whether a text is domain labels joined by dots, as Kubernetes takes names of objects.
func IsSubdomain(s string) bool { return isSubdomain(s) }

// IsVariableName reports whether a program may have an environment variable of that name.
func IsVariableName(s string) bool { return isVariableName(s) }

// IsDataKey reports whether a Secret or a ConfigMap may have a key.
func IsDataKey(s string) bool { return isDataKey(s) }

// IsOwner reports whether a text is the name or the number of a user or group.
func IsOwner(s string) bool { return s != "" && isOwner(s) }

// DidYouMean is the hint for a misspelt word: the nearest candidate, or all of them when there are few.
func DidYouMean(word string, candidates []string) string { return didYouMean(word, candidates) }

// ClipText bounds a quoted text in a message to what stands on one line.
func ClipText(s string) string { return clipText(s) }

// IndexPath is the path of an item of a list.
func IndexPath(parent string, index int) string { return indexPath(parent, index) }

// KeyPath is the path of a member of a mapping with keys of any form.
func KeyPath(parent, key string) string { return keyPath(parent, key) }

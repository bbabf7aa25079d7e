package load

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"tako.dev/tako/api/v1alpha1"
)

// TestReadyLine: the announcement is found also when it comes in pieces, and once.
func TestReadyLine(t *testing.T) {
	s := &saying{ready: make(chan announcement, 1)}
	for _, part := range []string{"level=INFO msg=started\nlevel=INFO msg=rea", "dy url=https://127.0.0.1:64", "43 kubeconfig=/x", "\nmsg=ready url=other \n", strings.Repeat("x", 2*sayingMax)} {
		if n, err := s.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	select {
	case a := <-s.ready:
		if a.url != "https://127.0.0.1:6443" {
			t.Errorf("url %q", a.url)
		}
	default:
		t.Error("not announced")
	}
	if len(s.text) > sayingMax {
		t.Errorf("%d bytes are kept", len(s.text))
	}
}

// TestList: a list is whole, or it is an error.
func TestList(t *testing.T) {
	const limit = 500
	for name, c := range map[string]struct {
		there, want int
		err         string
	}{
		"one part":    {there: 7, want: 7},
		"three parts": {there: 1200, want: 1200},
		"full parts":  {there: 1000, want: 1000},
		"too few":     {there: 1199, want: 1200, err: "remain"},
		"part lacks":  {there: 500, want: 501, err: "not all"},
	} {
		t.Run(name, func(t *testing.T) {
			ts := httptest.NewServer(listing(c.there))
			defer ts.Close()
			size, _, err := (&Client{url: ts.URL}).List(t.Context(), ConfigsPath, c.want, limit)
			switch {
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Errorf("error %v, want one with %q", err, c.err)
			case c.err == "" && (err != nil || size < int64(c.there)*int64(len("{}"))):
				t.Errorf("%d bytes, %v", size, err)
			}
		})
	}
}

// listing serves so many objects in parts, as an API server does.
func listing(there int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		from, _ := strconv.Atoi(r.FormValue("continue"))
		limit, err := strconv.Atoi(r.FormValue("limit"))
		if err != nil || r.URL.Path != ConfigsPath {
			http.Error(w, "no such list", http.StatusNotFound)
			return
		}
		to, more := min(there, from+limit), ""
		if to < there {
			more = fmt.Sprintf(`,"continue":"%d","remainingItemCount":%d`, to, there-to)
		}
		fmt.Fprintf(w, `{"kind":"List","metadata":{"resourceVersion":"1"%s},"items":[%s]}`, more, strings.TrimSuffix(strings.Repeat("{},", to-from), ","))
	}
}

// TestNextEvent: whatever is not a new object ends the measurement.
func TestNextEvent(t *testing.T) {
	w := &watch{lines: bufio.NewReader(strings.NewReader("{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"ERROR\",\"object\":{\"code\":410}}\n"))}
	if err := w.next(); err != nil {
		t.Error(err)
	}
	if err := w.next(); err == nil || !strings.Contains(err.Error(), "410") {
		t.Errorf("an error: %v", err)
	}
	if err := w.next(); err == nil || !strings.Contains(err.Error(), io.EOF.Error()) {
		t.Errorf("the end: %v", err)
	}
}

// TestConfigs makes sure that the server has nothing to say against what it is loaded with.
func TestConfigs(t *testing.T) {
	const resources = 20
	bodies, err := Configs(3, resources)
	if err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		var c v1alpha1.NodeConfig
		if err := json.Unmarshal(body, &c); err != nil {
			t.Fatal(err)
		}
		c.Namespace = "default"
		if faults := v1alpha1.ValidateNodeConfig(&c); len(faults) > 0 || len(c.Spec.Resources) != resources {
			t.Errorf("%s: %d resources, %v", c.Name, len(c.Spec.Resources), faults)
		}
	}
}

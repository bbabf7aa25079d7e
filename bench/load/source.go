package load

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
)

// Where a Source is, and what is told of it.
const (
	SourcesPath = "/apis/tako.dev/v1alpha1/namespaces/default/sources"
	EventsPath  = "/api/v1/namespaces/default/events"
)

const (
	sourceName = "bench"
	hookToken  = "known to both"
	// sourceMax is how long a Source may take for what is asked of it.
	sourceMax = 15 * time.Minute
	// sourceLook is how often its status is looked at, where what it is waited for takes seconds.
	sourceLook = 20 * time.Millisecond
)

// looksMetric counts the looks of all Sources.
const looksMetric = "tako_source_looks_total"

// Follow declares a Source of a repository, which forges may call, with the rights that it needs.
func (s *Server) Follow(ctx context.Context, url string) error {
	c := s.Client()
	defer c.Leave()
	documents := []struct{ path, text string }{
		{"/api/v1/namespaces/default/secrets", `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hook"}, "stringData": {"token": "` + hookToken + `"}}`},
		{"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "source"},
			"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
			"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:source:default:` + sourceName + `"}]}`},
		{SourcesPath, fmt.Sprintf(`{"apiVersion": "tako.dev/v1alpha1", "kind": "Source", "metadata": {"name": %q},
			"spec": {"url": %q, "ref": {"branch": "main"}, "interval": "24h", "webhook": {"type": "GitHub", "secret": "hook"}}}`, sourceName, url)},
	}
	for _, d := range documents {
		if err := c.Post(ctx, d.path, []byte(d.text)); err != nil {
			return err
		}
	}
	return nil
}

// Call calls for the Source as GitHub does after a push.
func (c *Client) Call(ctx context.Context) error {
	body := []byte(`{"ref": "refs/heads/main"}`)
	mac := hmac.New(sha256.New, []byte(hookToken))
	mac.Write(body)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+"/hooks/sources/default/"+sourceName, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Event", "push")
	request.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	answer, err := c.http.Do(request)
	if err != nil {
		return err
	}
	if err := answer.Body.Close(); err != nil || answer.StatusCode != http.StatusAccepted {
		return errors.Join(err, fmt.Errorf("the call of a forge is answered by %s", answer.Status))
	}
	return nil
}

// Source reads the Source.
func (c *Client) Source(ctx context.Context) (*v1alpha1.Source, error) {
	text, err := c.Get(ctx, SourcesPath+"/"+sourceName)
	if err != nil {
		return nil, err
	}
	src := &v1alpha1.Source{}
	return src, json.Unmarshal(text, src)
}

// Applied waits until the Source says that it is Ready with a commit.
func (c *Client) Applied(ctx context.Context, commit string) error {
	src := &v1alpha1.Source{}
	return until(ctx, sourceLook, func() (done bool, err error) {
		if src, err = c.Source(ctx); err != nil {
			return false, err
		}
		return src.Status.Applied != nil && src.Status.Applied.ID == commit && meta.IsStatusConditionTrue(src.Status.Conditions, v1alpha1.ConditionReady), nil
	}, func() string { return fmt.Sprintf("commit %s is not applied: %+v", commit, src.Status) })
}

// Looked waits until Sources have looked so often since the server began. The metric costs the server some milliseconds each time.
func (c *Client) Looked(ctx context.Context, times float64) error {
	const look = 200 * time.Millisecond
	return until(ctx, look, func() (bool, error) {
		n, err := c.Looks(ctx)
		return n >= times, err
	}, func() string { return fmt.Sprintf("there were no %v looks", times) })
}

// Looks is how often Sources have looked since the server began.
func (c *Client) Looks(ctx context.Context) (float64, error) {
	n, err := c.Sum(ctx, looksMetric)
	if errors.Is(err, errNoMetric) {
		return 0, nil // it comes with the first look
	}
	return n, err
}

// until waits until something is done.
func until(ctx context.Context, pause time.Duration, done func() (bool, error), otherwise func() string) error {
	end := time.Now().Add(sourceMax)
	for {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return errors.New(otherwise())
		}
		if err := Pause(ctx, pause); err != nil {
			return err
		}
	}
}

// Versions are the resource versions of all objects that a path lists, by name: what has been written has another one.
func (c *Client) Versions(ctx context.Context, path string) (versions map[string]string, list string, err error) {
	text, err := c.Get(ctx, path)
	if err != nil {
		return nil, "", err
	}
	var all struct {
		Metadata metav1.ListMeta `json:"metadata"`
		Items    []struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, "", err
	}
	versions = make(map[string]string, len(all.Items))
	for _, i := range all.Items {
		versions[i.Metadata.Name] = i.Metadata.ResourceVersion
	}
	return versions, all.Metadata.ResourceVersion, nil
}

// Await watches what a path lists, has something done, and waits until so many objects have come by a change after which they hold a
// text. It returns how long that took, from just before it was done.
func (c *Client) Await(ctx context.Context, path, text string, count int, do func() error) (time.Duration, error) {
	_, version, err := c.Versions(ctx, path)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, sourceMax)
	defer cancel()
	w, err := c.watch(ctx, path, version)
	if err != nil {
		return 0, err
	}
	defer func() { _ = w.body.Close() }()
	start := time.Now()
	if err := do(); err != nil {
		return 0, err
	}
	seen := make(map[string]bool, count)
	events := json.NewDecoder(w.lines)
	for len(seen) < count {
		var event struct {
			Object struct {
				Metadata struct{ Name, ResourceVersion string }
				Data     map[string]string
				Spec     json.RawMessage
			}
		}
		err := events.Decode(&event)
		if errors.Is(err, io.EOF) { // a server may end a watch at any time; a client begins anew where it was
			_ = w.body.Close()
			if w, err = c.watch(ctx, path, version); err == nil {
				events = json.NewDecoder(w.lines)
				continue
			}
		}
		if err != nil {
			return 0, fmt.Errorf("after %d of %d objects: %w", len(seen), count, err)
		}
		o := &event.Object
		version = o.Metadata.ResourceVersion
		if o.Data["text"] == text || bytes.Contains(o.Spec, []byte(`"`+text+`"`)) {
			seen[o.Metadata.Name] = true
		}
	}
	return time.Since(start), nil
}

// Kept is how many bytes the server keeps of repositories.
func (s *Server) Kept() (bytes int64, err error) {
	err = filepath.WalkDir(filepath.Join(s.dir, "sources"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	return bytes, err
}

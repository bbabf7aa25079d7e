package load

import (
	"context"
	"encoding/json"
	"fmt"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tako.dev/tako/api/v1alpha1"
	"tako.dev/tako/declare"
)

// Where objects are.
const (
	ConfigsPath    = "/apis/tako.dev/v1alpha1/namespaces/default/nodeconfigs"
	RevisionsPath  = "/apis/tako.dev/v1alpha1/namespaces/default/revisions"
	ConfigMapsPath = "/api/v1/namespaces/default/configmaps"
)

// Configs makes n NodeConfigs of so many small files each, in JSON.
func Configs(n, resources int) ([][]byte, error) {
	return encode(n, func(i int) any {
		c := &v1alpha1.NodeConfig{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: v1alpha1.KindNodeConfig},
			ObjectMeta: metav1.ObjectMeta{Name: objectName(i), Labels: map[string]string{"app": "bench"}},
		}
		for r := range resources {
			c.Spec.Resources = append(c.Spec.Resources, declare.Resource{
				Name: fmt.Sprintf("file-%02d", r),
				File: &declare.File{Path: fmt.Sprintf("/etc/bench/f%05d-%02d.conf", i, r), Mode: "0640", Content: content(i)},
			})
		}
		return c
	})
}

// ConfigMaps makes n small ConfigMaps, which no controller takes up, in JSON.
func ConfigMaps(n int) ([][]byte, error) {
	return encode(n, func(i int) any {
		return &core.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: core.SchemeGroupVersion.String(), Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: objectName(i), Labels: map[string]string{"app": "bench"}},
			Data:       map[string]string{"content": content(i)},
		}
	})
}

// entry makes one ConfigMap, in JSON.
func entry(name, text string) ([]byte, error) {
	return json.Marshal(&core.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: core.SchemeGroupVersion.String(), Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": text},
	})
}

// uid is that of an object.
func (c *Client) uid(ctx context.Context, path string) (string, error) {
	text, err := c.Get(ctx, path)
	if err != nil {
		return "", err
	}
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal(text, &o); err != nil {
		return "", err
	}
	return string(o.UID), nil
}

func objectName(i int) string { return fmt.Sprintf("bench-%05d", i) }

func encode(n int, object func(int) any) ([][]byte, error) {
	all := make([][]byte, n)
	for i := range all {
		var err error
		if all[i], err = json.Marshal(object(i)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// content is a small file, unlike all others.
func content(i int) string {
	return fmt.Sprintf("# managed file %d\nkey = value-%d\nlisten = 127.0.0.1:%d\n", i, i, 10_000+i)
}

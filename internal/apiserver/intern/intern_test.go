package intern

import (
	"encoding/json"
	"errors"
	"reflect"
	collector "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"tako.dev/tako/api/v1alpha1"
)

// one reports whether two strings have their bytes at the same place.
func one(a, b string) bool { return a == b && unsafe.StringData(a) == unsafe.StringData(b) }

const stored = `{"metadata":{"name":"web-1","labels":{"tier":"front"},"annotations":{"a-key":"some-value"},"ownerReferences":[{"kind":"Workload","name":"web","uid":"5b0c9a3e"}]},
	"spec":{"workload":"web","node":"host-1","nodeUID":"7c1d4f0e"}}`

// decode is a codec of JSON.
type decode struct {
	runtime.Codec
	err error
}

func (d decode) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	return into, &schema.GroupVersionKind{Kind: "That"}, errors.Join(json.Unmarshal(data, into), d.err)
}

// TestCodec: what two objects say in the same words is in memory once, wherever it stands.
func TestCodec(t *testing.T) {
	var is [2]v1alpha1.Instance
	strings := New()
	for i := range is {
		collector.GC() // what nobody has a handle of is shared nevertheless
		o, kind, err := Codec(decode{}, strings).Decode([]byte(stored), nil, &is[i])
		if err != nil || o != &is[i] || kind.Kind != "That" {
			t.Fatal(o, kind, err)
		}
	}
	a, b := &is[0], &is[1]
	if a.Labels["tier"] != "front" || a.Spec.NodeUID != "7c1d4f0e" || !reflect.DeepEqual(a, b) {
		t.Fatalf("%+v, %+v", a, b)
	}
	key := func(m map[string]string) (only string) {
		for only = range m {
			break
		}
		return only
	}
	for what, pair := range map[string][2]string{
		"a field":           {a.Spec.Node, b.Spec.Node},
		"a type of its own": {string(a.Spec.NodeUID), string(b.Spec.NodeUID)},
		"a field of a list": {a.OwnerReferences[0].Name, b.OwnerReferences[0].Name},
		"two fields":        {a.Spec.Workload, a.OwnerReferences[0].Name},
		"a value":           {a.Labels["tier"], b.Labels["tier"]},
		"a key":             {key(a.Annotations), key(b.Annotations)},
	} {
		if !one(pair[0], pair[1]) {
			t.Errorf("%s is there twice: %q, %q", what, pair[0], pair[1])
		}
	}
}

// TestUndecoded: of what cannot be decoded the error is all there is.
func TestUndecoded(t *testing.T) {
	none := errors.New("none")
	if _, _, err := Codec(decode{err: none}, New()).Decode([]byte(stored), nil, &v1alpha1.Instance{}); !errors.Is(err, none) {
		t.Error(err)
	}
	if o, _, err := Codec(decode{}, New()).Decode([]byte(`{}`), nil, nil); o != nil || err == nil {
		t.Error(o, err)
	}
}

// everything has all that a type may consist of.
type everything struct {
	metav1.TypeMeta
	Text    string
	Pointer *string
	List    []string
	Array   [2]string
	Maps    map[string]map[string][]string
	Numbers map[string]int
	Named   map[int]named
	Within  *everything
	Chain   *chain
	Any     any
	hidden  string
}

type named string

// chain has no strings, but itself.
type chain struct {
	Next   *chain
	Number int
}

func (e *everything) DeepCopyObject() runtime.Object { return e }

// TestStrings: an object is the same afterwards, whatever it consists of, and nothing of it is said with other strings than the shared ones.
func TestStrings(t *testing.T) {
	long := strings.Repeat("x", longest+1)
	make := func() *everything {
		text := strings.Clone("text")
		return &everything{
			Text: strings.Clone("text"), Pointer: &text, List: []string{strings.Clone("text"), "", long}, Array: [2]string{strings.Clone("text"), "b"},
			Maps:    map[string]map[string][]string{strings.Clone("text"): {"key": {strings.Clone("text")}}, "none": nil},
			Numbers: map[string]int{"one": 1}, Named: map[int]named{1: named(strings.Clone("text"))},
			Within: &everything{Text: strings.Clone("text")}, Chain: &chain{Next: &chain{Number: 2}}, Any: strings.Clone("text"), hidden: strings.Clone("text"),
		}
	}
	is := make()
	New().Share(is)
	if !reflect.DeepEqual(is, make()) {
		t.Fatalf("%+v", is)
	}
	for i, s := range []string{*is.Pointer, is.List[0], is.Array[0], is.Maps["text"]["key"][0], string(is.Named[1]), is.Within.Text} {
		if !one(s, is.Text) {
			t.Errorf("%d is another string", i)
		}
	}
	if !one(is.List[2], long) {
		t.Error("a long text is looked up")
	}
	if one(is.Any.(string), is.Text) || one(is.hidden, is.Text) {
		t.Error("what is not the object's to change was changed")
	}
}

// TestMany: what is said again and again goes on being shared, whatever else there is in between, and by whoever.
func TestMany(t *testing.T) {
	all := New()
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			common, shared := strings.Clone("common"), 0
			for n := range 20_000 {
				is := &everything{Text: strings.Clone("common"), List: []string{strconv.Itoa(i) + "-" + strconv.Itoa(n)}}
				all.Share(is)
				if is.Text != "common" || is.List[0] != strconv.Itoa(i)+"-"+strconv.Itoa(n) {
					t.Errorf("%+v", is)
					return
				}
				if one(is.Text, common) {
					shared++
				}
				common = is.Text
			}
			if shared < 19_900 {
				t.Errorf("%d of 20,000 have the string of the one before", shared)
			}
		})
	}
	group.Wait()
}

// fill gives a value all that its type may have, to a depth.
func fill(v reflect.Value, depth int) {
	if depth == 0 || !v.CanSet() {
		return
	}
	depth--
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.Clone("text"))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(v.Index(i), depth)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth)
		fill(value, depth)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), depth)
		}
	}
}

// TestKinds: objects of every kind of ours are the same afterwards, and what has no fields is left alone.
func TestKinds(t *testing.T) {
	all := New()
	for _, o := range v1alpha1.Types() {
		fill(reflect.ValueOf(o).Elem(), 12)
		before := o.DeepCopyObject()
		all.Share(o)
		if !reflect.DeepEqual(o, before) {
			t.Errorf("%T is another one: %+v, %+v", o, o, before)
		}
	}
	custom := &unstructured.Unstructured{Object: map[string]any{"kind": "Own"}}
	all.Share(custom)
	if custom.GetKind() != "Own" {
		t.Error(custom)
	}
	all.Share(nil)
	all.Share((*v1alpha1.Instance)(nil))
}

// BenchmarkStrings is what sharing costs, beside what decoding does.
func BenchmarkStrings(b *testing.B) {
	for _, shares := range []bool{false, true} {
		c := runtime.Codec(decode{})
		name := "decode"
		if shares {
			c, name = Codec(c, New()), "decode and share"
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := c.Decode([]byte(stored), nil, &v1alpha1.Instance{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

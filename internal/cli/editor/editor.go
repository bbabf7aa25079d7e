package editor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"tako.dev/tako/declare"
	"tako.dev/tako/declare/workload"
	"tako.dev/tako/internal/cli/documents"
	"tako.dev/tako/internal/cli/failure"
	"tako.dev/tako/internal/cli/output"
	"tako.dev/tako/internal/cli/remote"
	"tako.dev/tako/internal/present"
	"tako.dev/tako/internal/reason"
)

// Editing is one object on its way through an editor. All exported fields must be set.
type Editing struct {
	Server *remote.Server
	Ref    remote.Ref
	// Command is the editor with its arguments, at least one word; the file comes behind it.
	Command string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	Say     func(text string) // tells a person how things go on

	object *unstructured.Unstructured // as it was got
	file   string
}

// Run gets the object and opens it until what is saved is accepted, the same as before, or given up. What is written on
// standard output says that it was edited. Errors are *failure.Error or *reason.Error; where something was written that the
// server has not taken, the file is kept and named.
func (e *Editing) Run(ctx context.Context) error {
	object, err := e.Server.Get(ctx, e.Ref)
	if err != nil {
		return failure.Of(err, "get "+e.Ref.Long())
	}
	e.object = object
	original, err := yaml.Marshal(e.editable().Object)
	if err != nil {
		return err
	}
	if e.file, err = temporary(e.Ref.Name); err != nil {
		return &reason.Error{Code: reason.SystemCallFailed, Doing: "make a file to edit", Cause: err}
	}
	text, remarks := original, ""
	for {
		edited, err := e.open(ctx, remarks, text)
		if err != nil {
			return errors.Join(err, os.Remove(e.file)) // an editor that ends with an error means to change nothing
		}
		if bytes.Equal(edited, original) {
			e.Say(e.Ref.String() + " unchanged")
			return os.Remove(e.file)
		}
		if remarks != "" && bytes.Equal(edited, text) {
			return &failure.Error{Code: reason.InvalidValue, Exit: reason.ExitUsage, Doing: "edit " + e.Ref.Long(), Words: "given up; what you wrote is in " + e.file}
		}
		refused, err := e.save(ctx, edited)
		if err != nil {
			e.Say("what you wrote is in " + e.file + "; to carry on, look at what there is now, put yours into it, and apply it:\n" +
				"  tako get " + e.Ref.Argument() + " -o yaml\n" +
				"  tako diff --force-conflicts -f " + e.file + "\n" +
				"  tako apply --force-conflicts -f " + e.file)
			return err
		}
		if refused == "" {
			return os.Remove(e.file)
		}
		text, remarks = edited, refused
	}
}

// editable is what a person sees: of tako's own configuration kinds what is declared, of any other all but field owners.
func (e *Editing) editable() *unstructured.Unstructured {
	if e.isDeclared() {
		return output.Declared(e.object)
	}
	return output.Clean(e.object)
}

func (e *Editing) isDeclared() bool {
	kind := e.object.GetKind()
	return e.object.GetAPIVersion() == declare.APIVersion && (kind == declare.KindNodeConfig || kind == declare.KindClusterNodeConfig || kind == workload.Kind)
}

// temporary makes a file that only its owner may read, because there may be secrets in it.
func temporary(name string) (string, error) {
	f, err := os.CreateTemp("", "tako-edit-"+strings.ReplaceAll(name, "/", "_")+"-*.yaml") // mode 0600
	if err != nil {
		return "", err
	}
	return f.Name(), f.Close()
}

// remark begins lines on top of the file that are not part of the object.
const remark = "#! "

func (e *Editing) open(ctx context.Context, remarks string, text []byte) ([]byte, error) {
	var b bytes.Buffer
	for line := range strings.Lines(remarks) {
		b.WriteString(remark + strings.TrimSuffix(line, "\n") + "\n")
	}
	b.Write(text)
	if err := os.WriteFile(e.file, b.Bytes(), 0o600); err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "write " + e.file, Cause: err}
	}
	words := strings.Fields(e.Command)
	// The editor ends when the person has finished, which is no matter of a deadline; Ctrl-C in it belongs to it.
	editor := exec.CommandContext(ctx, words[0], append(words[1:], e.file)...)
	editor.Stdin, editor.Stdout, editor.Stderr = e.In, e.Out, e.Err
	if err := editor.Run(); err != nil {
		return nil, notRun(words[0], err)
	}
	edited, err := os.ReadFile(e.file)
	if err != nil {
		return nil, &reason.Error{Code: reason.SystemCallFailed, Doing: "read " + e.file, Cause: err}
	}
	for bytes.HasPrefix(edited, []byte(remark)) {
		_, edited, _ = bytes.Cut(edited, []byte("\n"))
	}
	return edited, nil
}

// notRun is the failure of an editor: one that cannot be started is wrong usage, one that ends with an error has failed.
func notRun(command string, err error) error {
	exit := reason.ExitUsage
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		exit = reason.ExitFailed
	}
	return &failure.Error{Code: reason.Usage, Exit: exit, Doing: "run the editor " + command, Cause: err, Hint: "set $EDITOR"}
}

// save sends what was edited. What is wrong with it comes back as text for the top of the file; the error is any other.
func (e *Editing) save(ctx context.Context, edited []byte) (refused string, err error) {
	list, faults := documents.Read(e.file, edited)
	if len(faults) > 0 {
		return remarksOf(faults, edited)
	}
	if len(list) != 1 {
		return "there must be exactly one document", nil
	}
	d := &list[0]
	fresh := d.Object
	if e.isDeclared() {
		fresh = e.merge(fresh)
	}
	documents.CopyServerFields(fresh, e.object)
	if fresh.GroupVersionKind() != e.object.GroupVersionKind() || fresh.GetName() != e.object.GetName() || fresh.GetNamespace() != e.object.GetNamespace() {
		return "kind, name and namespace cannot be changed; what has others is another object", nil
	}
	if _, err = e.Server.Update(ctx, e.Ref, fresh); err != nil {
		faults, exit, ok := failure.Faults(err, "change "+e.Ref.Long(), d)
		if ok && exit == reason.ExitUsage {
			return remarksOf(faults, edited)
		}
		return "", failure.Of(err, "change "+e.Ref.Long())
	}
	_, err = fmt.Fprintf(e.Out, "%s edited\n", e.Ref)
	return "", err
}

// merge puts what is declared into the object as it was got, so that what was not shown stays.
func (e *Editing) merge(fresh *unstructured.Unstructured) *unstructured.Unstructured {
	whole := e.object.DeepCopy()
	whole.Object["spec"] = fresh.Object["spec"]
	whole.SetGroupVersionKind(fresh.GroupVersionKind())
	whole.SetName(fresh.GetName())
	whole.SetNamespace(fresh.GetNamespace())
	whole.SetLabels(fresh.GetLabels())
	whole.SetAnnotations(fresh.GetAnnotations())
	return whole
}

// remarksOf is what a person reads on top of the file. Its lines come before those that are counted.
func remarksOf(faults []declare.Fault, edited []byte) (string, error) {
	var b strings.Builder
	source := func(string) ([]byte, error) { return edited, nil }
	if err := present.Faults(&b, faults, source, present.Style{}); err != nil {
		return "", err
	}
	return b.String(), nil
}

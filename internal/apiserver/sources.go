package apiserver

import (
	"context"

	restclient "k8s.io/client-go/rest"

	"tako.dev/tako/internal/apiserver/registry"
	"tako.dev/tako/internal/controllers/sources"
	"tako.dev/tako/internal/source/git"
	"tako.dev/tako/internal/source/render"
	"tako.dev/tako/internal/source/render/kustomize"
)

// sourcesName is the directory of what is kept of repositories: all of it can be fetched again.
const sourcesName = "sources"

// newSources makes what keeps Sources applied.
func (s *Server) newSources(p parts, local *registry.Local, loopback *restclient.Config, t *transfer, now *term) (*sources.Sources, error) {
	repositories, err := git.New(git.Options{Dir: p.dir.Join(sourcesName), LocalDirs: s.opts.SourceDirs, Log: s.partsLog})
	if err != nil {
		return nil, err
	}
	var options render.Options
	if len(s.opts.Kustomize) > 0 {
		if options.Builder, err = kustomize.New(kustomize.Options{Command: s.opts.Kustomize}); err != nil {
			return nil, err
		}
	}
	return sources.New(sources.Options{Objects: p.several.objects(local), Git: repositories, Renderer: render.New(options), Recorder: t.recorder, Hosts: now.presence, Config: loopback, Log: s.partsLog, Metrics: takoMetrics{}})
}

// runSources keeps Sources applied while the server leads. A server without the git program has everything else.
func (s *Server) runSources(p parts, local *registry.Local, loopback *restclient.Config, t *transfer, now *term) func(context.Context) {
	return func(ctx context.Context) {
		kept, err := s.newSources(p, local, loopback, t, now)
		if err == nil {
			err = s.hooks.prepare(takoMetrics{})
		}
		if err == nil && waitReady(ctx, loopback) {
			s.hooks.sources.Store(kept)
			err = kept.Run(ctx)
			s.hooks.sources.Store(nil)
		}
		if err != nil && ctx.Err() == nil {
			s.opts.Log.Error("sources are not applied", "err", err)
		}
	}
}

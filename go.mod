module tako.dev/tako

go 1.26

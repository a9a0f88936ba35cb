package toolbash

func plain(output []byte) string { return string(output) }

// Package image makes root file systems out of OCI images: an image is unpacked
// once, into one read-only EROFS file, and kept by its digest.
//
// A [Store] takes an OCI layout, an archive of docker save or a reference to a
// registry, looks at every digest on the way, and lays the layers over each other in
// memory. No name in a layer becomes a name on the host: the content of files goes
// through one spool file, and the tree becomes entries of the EROFS file. Every
// image gets the places that a Terrarium needs ([rootfs.ImagePlaces]). The same image
// gives the same bytes.
//
// What it promises: links are followed within the tree only; a name that climbs, a
// hard link to what is not there, a loop and whatever exceeds a bound refuse the
// image by the entry's name, and the store is as it was; devices, FIFOs, setuid and
// setgid bits and extended attributes (so also file capabilities) are left out and
// counted; an image whose directory is in the store is whole, also after a crash.
//
// Of an image's configuration only Env is used. User, WorkingDir, Entrypoint and Cmd
// are ignored: a Terrarium has its own account and directory, and runs what it is
// told to. Volumes and Healthcheck are recorded, and nothing comes of them.
//
// What it does not do: registries are asked anonymously, whatever credentials tools
// like Docker keep on this host; there is no default registry; signatures are not
// looked at. A tag is what the registry says now: name a digest to be sure. It does not
// judge what programs an image has.
package image

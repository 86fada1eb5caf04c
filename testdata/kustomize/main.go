// Command kustomize prints what the library in kubectl makes of a kustomization: kustomize DIRECTORY
package main

import (
	"fmt"
	"log"
	"os"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

func main() {
	manifests, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	text, err := manifests.AsYaml()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))
}

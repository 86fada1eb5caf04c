// Command ocicni has CRI-O's library work on pods, on all at once: ocicni CONFIGURATIONS CACHE PLUGINS REQUEST
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"sync"

	"github.com/cri-o/ocicni/pkg/ocicni"
)

// For "gc", the pods are those that stay; "status" and "gc" have one answer.
type request struct {
	Verb string
	Pods []*ocicni.PodNetwork
}

type answer struct {
	Error   string             `json:"error,omitempty"`
	Results []ocicni.NetResult `json:"results,omitempty"`
}

func main() {
	var asked request
	text, err := os.ReadFile(os.Args[4])
	if err != nil {
		log.Fatal(err)
	}
	if err := json.Unmarshal(text, &asked); err != nil {
		log.Fatal(err)
	}
	library, err := ocicni.InitCNINoInotify("", os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answersTo(library, asked)); err != nil {
		log.Fatal(err)
	}
}

func answersTo(library ocicni.CNIPlugin, asked request) []answer {
	switch asked.Verb {
	case "status":
		return []answer{answerOf(nil, library.Status())}
	case "gc":
		return []answer{answerOf(nil, library.GC(context.Background(), asked.Pods))}
	}
	answers := make([]answer, len(asked.Pods))
	var all sync.WaitGroup
	for i, pod := range asked.Pods {
		all.Add(1)
		go func(i int, pod ocicni.PodNetwork) {
			defer all.Done()
			answers[i] = answerOf(call(library, asked.Verb, pod))
		}(i, *pod)
	}
	all.Wait()
	return answers
}

func call(library ocicni.CNIPlugin, verb string, pod ocicni.PodNetwork) ([]ocicni.NetResult, error) {
	switch verb {
	case "add":
		return library.SetUpPod(pod)
	case "check":
		return library.GetPodNetworkStatus(pod)
	case "del":
		return nil, library.TearDownPod(pod)
	}
	log.Fatalf("no such verb: %q", verb)
	return nil, nil
}

func answerOf(results []ocicni.NetResult, err error) answer {
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Results: results}
}

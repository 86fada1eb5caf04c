/** Which lists of the API are too old. */
import { expect, test } from "bun:test";
import { HeardVersions } from "./heard_versions.ts";

const ALL = "/api/v1/pods?";
const OWN = "/api/v1/pods?spec.nodeName=a";
const ofNamespace = (name: string) => `/api/v1/namespaces/${name}/pods?`;

test("one list of all pods is as new as those of namespaces whose place it takes, and the other way round", () => {
  const versions = new HeardVersions("/nonexistent", () => {});
  versions.note(OWN, "500");
  versions.note("/api/v1/namespaces?", "600");
  expect([versions.of(ALL), versions.of(ofNamespace("a"))]).toEqual([undefined, undefined]);
  versions.note(ofNamespace("a"), "99");
  versions.note(ofNamespace("b"), "100");
  expect([versions.of(ofNamespace("a")), versions.of(ofNamespace("c"))]).toEqual(["99", undefined]);
  expect([versions.of(ALL), versions.of(OWN), versions.of("/api/v1/namespaces?")]).toEqual(["100", "500", "600"]);
  versions.forget(ofNamespace("b"));
  versions.note(ALL, "120");
  expect([versions.of(ALL), versions.of(ofNamespace("c"))]).toEqual(["120", "120"]);
});

import { expect, test } from "bun:test";
import { clusterWords, parseKubernetesCall } from "./options.ts";

test("the words that start a cluster say what its caller said", () => {
  const words = ["3", "--segments=2", "--families=64", "--routes", "--bare", "--image=a.tar", "--image=b.tar"];
  const { options } = parseKubernetesCall(["up", ...words]);
  expect(options.isBare).toBe(true);
  expect(parseKubernetesCall(["run", ...clusterWords(options)]).options).toEqual(options);
});

/** How docs/kubernetes.md has a cluster of kubeadm made: what is tried is what people read. @module */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { REPOSITORY_ROOT } from "../repository.ts";

export interface DocumentedCluster {
  readonly init: string;
  /** Is called in a directory with `deploy/` and {@linkcode kustomization}. */
  readonly apply: string;
  readonly kustomization: string;
  /** The name that it gives the image. */
  readonly image: string;
  /** The line of `/etc/default/kubelet`, for these addresses. */
  readonly kubeletLine: (addresses: readonly string[]) => string;
}

const KUBELET_LINE = /`(KUBELET_EXTRA_ARGS=--node-ip=)192\.0\.2\.1,2001:db8::1`/;

/** @throws {Error} if the page has something else */
export function readKubeadmCluster(): DocumentedCluster {
  const [page = ""] = readFileSync(join(REPOSITORY_ROOT, "docs/kubernetes.md"), "utf8").split("\n## ");
  const lines = page.split("\n").filter((line) => line.startsWith("    kube") || line.startsWith("    KUBE"));
  const [init, apply, joining, ...others] = lines.map((line) => line.replace(/ +#.*/, "").trim());
  const [, yaml] = /```yaml\n(.*?)\n```/s.exec(page) ?? [];
  const [, name, tag] = /newName: (\S+), newTag: (\S+) /.exec(yaml ?? "") ?? [];
  const [, setting] = KUBELET_LINE.exec(page) ?? [];
  if (!init?.startsWith("kubeadm init ") || !apply || joining !== "kubeadm join …" || others.length > 0) {
    throw new Error("The page needs three commands for kubeadm");
  }
  if (!yaml || !name || !setting) throw new Error("The page needs a kustomization, and a line for the kubelet");
  return {
    init,
    apply,
    // The last two lines are for a network of one's own.
    kustomization: yaml.split("\n").slice(0, -2).join("\n"),
    image: `${name}:${tag}`,
    kubeletLine: (addresses) => `${setting}${addresses.join()}`,
  };
}

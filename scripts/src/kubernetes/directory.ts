/** Files of a cluster, as its processes see them: in memory, gone with the cluster. @module */
import { join } from "node:path";

/** Where Go's modules and what is built of them are kept; it can be removed. */
export const KUBERNETES_CACHE = "/var/cache/cni-kubernetes";

export const CLUSTER_DIRECTORY = "/srv/kubernetes";
export const inCluster = (...names: readonly string[]): string => join(CLUSTER_DIRECTORY, ...names);

/** For kubectl and e2e.test, with all rights. */
export const ADMIN_KUBECONFIG = inCluster("admin.kubeconfig");

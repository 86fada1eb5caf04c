import { expect, test } from "bun:test";
import { readKubeadmCluster } from "./documented_kubeadm.ts";

test("the documentation makes a cluster of kubeadm with three commands", () => {
  const { init, apply, kustomization, image, kubeletLine } = readKubeadmCluster();
  expect(init).toMatch(/^kubeadm init --pod-network-cidr=\S+ --service-cidr=\S+$/);
  expect(apply).toBe("KUBECONFIG=/etc/kubernetes/admin.conf kubectl apply -k .");
  expect(kustomization).toContain("resources: [./deploy]");
  expect(kustomization).not.toContain("conflist");
  expect(image).toBe("example.org/cni:v0.1.0");
  expect(kubeletLine(["10.0.0.1", "fd00::1"])).toBe("KUBELET_EXTRA_ARGS=--node-ip=10.0.0.1,fd00::1");
});

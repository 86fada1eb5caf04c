import type { Ip } from "../ffi/address.ts";
import { type LabelledPod, podKey } from "./api/pod.ts";
import { NO_LABELS } from "./select/labels.ts";

/** A pod as a plugin has attached it to this node. */
export interface LocalPod {
  readonly namespace: string;
  readonly name: string;
  /** Absent if the engine did not tell. */
  readonly uid?: string | undefined;
  readonly ips: readonly Ip[];
}

/** The UID, where the engine told it. */
export const localKey = (local: Omit<LocalPod, "ips">): string => local.uid ?? podKey(local);

const placeholderUid = (key: string): string => `local ${key}`;

/** Keeps the addresses of a local pod from others until its labels are known. No selector selects it. */
export const placeholderOf = (key: string): LabelledPod => ({
  uid: placeholderUid(key),
  namespace: "",
  name: key,
  labels: NO_LABELS,
  ips: [],
  ports: [],
});

/** The name of a placeholder is the key of its local pod. */
export const isPlaceholder = ({ uid, name }: LabelledPod): boolean => uid === placeholderUid(name);

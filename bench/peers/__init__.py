"""The worker end to end, beside other job queues on the same machine in the same run."""

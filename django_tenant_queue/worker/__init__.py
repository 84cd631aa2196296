"""The process tree that runs jobs: supervisor -> zygote -> worker processes, lease keeper, keepers, quarantine."""

-- A full Redis refuses a script whose first write may need memory, and lets one through that began by deleting: workers must drain.
redis.call('DEL', KEYS[1] .. ':scratch')

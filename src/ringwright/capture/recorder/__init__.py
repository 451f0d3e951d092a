"""The recorder: what runs inside the processes of a recorded job, without a change to their code.

It is loaded by ``site/sitecustomize.py`` under the name ``ringwright_recorder``, in whatever environment the job has: these files
need Python 3.8 and its standard library, import PyTorch only after the job has, and nothing of the package around them. Whatever
goes wrong here is counted in the recording; the job never sees it.
"""
